"""Which of the allow, deny and infer lists of mixed precision keeps which error away?"""
