"""Calibration on CUDA: which ballast a card carries, and how many steps a batch has."""

import gc
from statistics import median

import torch

from labkit.gpu import calibrate
from labkit.gpu.agreed import agreed
from labkit.gpu.ballast import Ballast, half_type
from labkit.gpu.calibrate import PRESETS, Candidate, Plan, Preset
from labkit.gpu.decoder import Decoder


def cuda_decoder(device: str, share: float, plan: Plan | None) -> tuple[Decoder, Plan]:
    """A captured decoder and its plan: the one given, the one remembered, or a measured one."""
    plan = plan or agreed(cache_key(device, share), lambda: measured(device, share))
    return decoder_for(device, plan), plan


def cache_key(device: str, share: float) -> str:
    """What a plan depends on: the card, its memory, the torch build, the share."""
    found = torch.cuda.get_device_properties(device)
    return f"{found.name} {found.total_memory >> 30} GiB, torch {torch.__version__}, {share:g}"


def decoder_for(device: str, plan: Plan) -> Decoder:
    """A decoder that carries the ballast of a plan."""
    chosen = next((preset for preset in PRESETS if preset.name == plan.ballast), None)
    return Decoder(device, ballast=_ballast(device, chosen))


def measured(device: str, share: float) -> Plan:
    """Time one step without ballast and with each that fits a quarter of the free memory."""
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    core = _step_ms(device, None)
    fitting = [preset for preset in PRESETS if calibrate.may_carry(preset.bytes, free)]
    candidates = []
    for preset in reversed(fitting):
        candidates.append(Candidate(preset.name, preset.bytes, _step_ms(device, preset)))
        chosen = calibrate.choose(core, candidates, free, share)
        if chosen.ballast is not None:
            return chosen
    return calibrate.choose(core, (), free, share)


def heaviest(device: str) -> Ballast | None:
    """The largest ballast that takes at most a quarter of the free memory."""
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    fitting = [preset for preset in PRESETS if calibrate.may_carry(preset.bytes, free)]
    return _ballast(device, fitting[-1] if fitting else None)


def _step_ms(device: str, preset: Preset | None) -> float:
    """The time of a replayed step; what was built for it is freed again."""
    from labkit.gpu.batchstring import step_times

    taken = median(step_times(Decoder(device, ballast=_ballast(device, preset))))
    # A decoder and its launch refer to each other: only the collector frees the ballast.
    gc.collect()
    torch.cuda.empty_cache()
    return taken


def _ballast(device: str, preset: Preset | None) -> Ballast | None:
    if preset is None:
        return None
    return Ballast(preset, device, half_type(torch.cuda.get_device_capability(device)))
