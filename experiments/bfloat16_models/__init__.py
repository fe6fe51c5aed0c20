"""Can models of five kinds be trained in BFloat16 alone, and by which updates?"""
