"""layer_numerics: per layer and step, NaN / Inf / huge counts and finite magnitudes of a model's tensors.

`collector` is the plugin's side in the sweep; `arming`, `session`, `recorder` run inside the observed program.
Standalone: `NANLOG_DIR=out python -m aorta_collectors.layer_numerics train.py`.
"""
