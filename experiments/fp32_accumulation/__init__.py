"""From which length on must sums of FP16 products be accumulated in FP32?"""
