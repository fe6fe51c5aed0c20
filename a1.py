# BF16 vs FP16 vs FP8 on a small MLP, from quickstart + presets
import numpy as np
import simfloat as sf
x = np.random.default_rng(0).standard_normal((256, 8))
y = x @ np.ones((8, 1))
for policy in ("fp32", "amp-bf16", "amp-fp16", "fp16-standard", "bf16-standard", "fp8-hybrid"):
    model, recorder = sf.nn.MLP([8, 16, 1], rng=0), sf.Recorder()
    optimizer = sf.optim.SGD(model.parameters(), lr=0.01)
    batches = sf.train.Batches(x, y, batch_size=32, epochs=25, seed=0)
    with sf.simulate(policy, seed=0, observer=recorder):
        history = sf.train.fit(model, sf.nn.mse_loss, batches, optimizer, progress=False)
    print(f"{policy:17} loss {history['loss'][-1]:.4f}, lost updates {recorder.lost_updates():.0%}")
print(recorder.advise())
policy = sf.policies["bf16-standard"].override("head", compute=sf.FP32)
policy = policy.override(operation="softmax", activations=sf.FP32)
try: print(policy.explain(model))
except Exception as e: print(type(e), e)
