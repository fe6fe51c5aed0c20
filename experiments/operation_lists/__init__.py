"""Which errors do the allow, deny and infer lists of mixed precision prevent?"""
