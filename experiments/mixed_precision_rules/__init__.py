"""Which of the rules that documents on mixed precision mention in passing are true?"""
