"""Which rules of mixed precision, said in passing by its documents, hold?"""
