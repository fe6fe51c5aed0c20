"""Every optimizer, with options under which it keeps all arrays that it can."""

KINDS = {
    "SGD": dict(lr=0.01, momentum=0.9, weight_decay=0.1),
    "Adam": dict(lr=0.01, amsgrad=True, weight_decay=0.1),
    "AdamW": dict(lr=0.01, amsgrad=True, weight_decay=0.1),
    "Adagrad": dict(lr=0.01, weight_decay=0.1, initial_accumulator_value=0.1),
    "RMSprop": dict(lr=0.01, weight_decay=0.1, centered=True, momentum=0.5),
    "NAdam": dict(lr=0.01, weight_decay=0.1),
    "RAdam": dict(lr=0.01, betas=(0.9, 0.9), weight_decay=0.1),
    "Adamax": dict(lr=0.01, weight_decay=0.1),
    "Adadelta": dict(eps=1e-2, weight_decay=0.1),
    "Adafactor": dict(lr=0.01, weight_decay=0.1),
    "Lion": dict(lr=0.01, weight_decay=0.1),
    "Muon": dict(lr=0.01, weight_decay=0.1),
}
COUNTERS = {"step", "mu_product"}
