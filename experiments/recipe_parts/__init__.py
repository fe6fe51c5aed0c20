"""Which parts of the recipes for NVFP4 and MXFP8 does a small GPT need to train as it does in BF16?"""
