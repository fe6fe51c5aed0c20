"""The one rule for margins, which stands before a claim is tested by it.

A claim whose source names a number is held to that number. What a source says in words is held to these numbers, the
same in every study: who finds a loss 3 % higher no match has one place to say so.
"""

#: To match, to train as, to suffice, to follow: a ratio of losses or errors within a twentieth.
MATCH = 1.05

#: The same for shares, such as accuracies, in percent: within a point.
POINT = 1.0

#: A law of growth: the exponent within a tenth.
EXPONENT = 0.1

#: About as good, or near: within a factor of two. Far, or by an order of magnitude: by more than a factor of ten.
ABOUT, FAR = 2.0, 10.0

#: Most: more than half. Many, or a large part: more than a tenth. Hardly any: less than a hundredth.
MOST, MANY, HARDLY = 0.5, 0.1, 0.01

#: In every run: an exception is rarer than one run in twenty.
RARE = 0.05
