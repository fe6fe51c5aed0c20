"""Does the state of an optimizer stall in narrow formats, and what helps?"""
