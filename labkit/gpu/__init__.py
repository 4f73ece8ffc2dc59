"""The torch side: a tiny trained model behind `batchstring`, its calibration and its measurements.

Nothing here is imported until it is used, and only the modules that compute import torch.
"""
