"""Loss, gradient norm and step lines of common trainers, and Megatron's rerun state machine (who is to blame for a NaN).

Source: log forms of Megatron-LM / Megatron-Core, NeMo 1 and 2, DeepSpeed, HF Trainer, torchtitan, Lightning, nanoGPT and JSON lines.
A field that is absent is a value too: Megatron leaves the loss out when it is NaN on the last stage, so `loss` may be missing on a step line.
"""

import re
from typing import Any, Final

from outrider.parsers.train_log_rule import LINE_CHARS_MAX, Gates, Record, gate, make_record, rule
from outrider.parsers.prefixes import plain

_NUM: Final = r"(?P<v>[-+]?(?:nan(?![a-z])|inf(?:inity)?(?![a-z])|\d{1,18}(?:\.\d{0,18})?(?:e[-+]?\d{1,4})?))"
_SEP: Final = r"['\"]?\s{0,3}(?:[:=]\s{0,12}|\s)['\"\[(]?"
_I: Final = re.IGNORECASE

_STEP: Final = re.compile(
    r"(?<![\w./-])(?:iteration|global[_ ]step|current[_ ]step|trainer/global_step|step|iter|steps|it)['\"]?\s{0,3}[:=#]?\s{0,12}['\"]?(?P<v>\d{1,12})(?:\s{0,8}(?:/|of)\s{0,12}(?P<total>\d{1,12}))?",
    _I,
)
_LOSS: Final = re.compile(
    r"(?<![\w])(?:lm[ _]loss|reduced_train_loss|train(?:ing)?[_ /]loss(?:_step)?|loss/train/total|loss_metrics/global_avg_loss|total[_ ]loss|avg[_ ]loss|global_avg_loss|ce[_ ]loss|loss)"
    + _SEP + _NUM,
    _I,
)  # fmt: skip
_GRAD: Final = re.compile(r"(?<![\w])(?:global[_ ])?grad(?:ient)?s?[_ /]?norm" + _SEP + _NUM, _I)
_LR: Final = re.compile(r"(?<![\w])(?:learning[_ ]rate|lr)" + _SEP + _NUM, _I)
_SCALE: Final = re.compile(r"loss[_ ]scale" + _SEP + _NUM, _I)
_SKIPPED: Final = re.compile(r"number of skipped iterations:\s{0,12}(?P<v>\d{1,9})")
_NANS: Final = re.compile(r"number of nan iterations:\s{0,12}(?P<v>\d{1,9})")
_TIME_MS: Final = re.compile(r"(?:elapsed time per iteration|iter(?:ation)?[ _]time|step[_ ]time|batch[_ ]time) ?\((?P<unit>ms|s)\)" + _SEP + _NUM, _I)
_TIME: Final = re.compile(
    r"(?<![\w])(?:train_step_timing in s|step[_ ]time|iter[_ ]time|time_per_step|step_s|time/step)" + _SEP + _NUM + r"\s?(?P<unit>ms|s)?", _I
)
_EVAL: Final = re.compile(r"\b(?:valid(?:ation)?|eval(?:uation)?|test|val)[_ /]", _I)


def parse_step(line: str, year: int) -> Record | None:
    """A record `step` with what the line says: step, total, loss, grad_norm, lr, scale, skipped, nans, step_s, eval.

    A line is a step line if it has a step number and one of loss, gradient norm or step time, or if it is a metrics
    dictionary with a loss. NaN and infinity come as floats.
    """
    line = plain(line[:LINE_CHARS_MAX])
    step = _STEP.search(line)
    loss = _LOSS.search(line) if "oss" in line or "OSS" in line else None
    grad = _GRAD.search(line) if "rad" in line or "RAD" in line else None
    if step is None and not (loss and "{" in line and ("learning_rate" in line or "epoch" in line or "grad_norm" in line)):
        return None
    data: dict[str, Any] = {}
    seconds = _seconds(line)
    if loss is None and grad is None and seconds is None:
        return None
    if step:
        data["step"] = int(step["v"])
        if step["total"]:
            data["total"] = int(step["total"])
    for key, match in (("loss", loss), ("grad_norm", grad)):
        if match:
            data[key] = float(match["v"])
    if seconds is not None:
        data["step_s"] = seconds
    for key, pattern, literal in (("lr", _LR, "l"), ("scale", _SCALE, "scale"), ("skipped", _SKIPPED, "skipped"), ("nans", _NANS, "nan it")):
        if literal in line and (match := pattern.search(line)):
            data[key] = float(match["v"])
    if loss is not None and _EVAL.search(line, 0, loss.end()):
        data["eval"] = True
    return make_record("step", line, data, year)


def _seconds(line: str) -> float | None:
    if "time" not in line and "tim" not in line and "step_s" not in line:
        return None
    match = _TIME_MS.search(line) or _TIME.search(line)
    if match is None:
        return None
    value = float(match["v"])
    return value / 1000 if match["unit"] and match["unit"].lower() == "ms" else value


_WHO: Final = r"(?:Rank (?P<rank>\d{1,7}), node (?P<node>[\w.-]{1,120}), device (?P<gpu>\d{1,3}), )?(?:iteration #(?P<step>\d{1,12}): )?"
_RESULTS: Final = r"(?:.{0,80}?\((?P<result>.{1,120}?)\)\s*$)?"


def _rerun(verdict: str) -> Any:
    return lambda data: data | {"verdict": verdict}


RERUN_GATES: Final[Gates] = (
    gate(
        "nexpected result",
        rule(
            "rerun_unexpected",
            "Unexpected result",
            r"Unexpected result (?P<result>\S{1,60}) on rank (?P<rank>\d{1,7}) at iteration #?(?P<step>\d{1,12})(?:.{0,60}?message='(?P<message>[^']{0,200}))?",
        ),
        rule("rerun", "First rerun", _WHO + r"First rerun: unexpected result is not reproducible" + _RESULTS, fix=_rerun("transient")),
        rule("rerun", "First rerun", _WHO + r"First rerun: unexpected result is reproducible" + _RESULTS, fix=_rerun("repeats_here")),
        rule("rerun", "Second rerun", _WHO + r"Second rerun: unexpected result is not reproducible" + _RESULTS, fix=_rerun("persistent")),
        rule("rerun", "Second rerun", _WHO + r"Second rerun: unexpected result is reproducible" + _RESULTS, fix=_rerun("correct")),
    ),
    gate("Possible transient error", rule("rerun", "transient", _WHO + r"Possible transient error", fix=_rerun("transient"))),
    gate("Possible persistent error", rule("rerun", "persistent", _WHO + r"Possible persistent error", fix=_rerun("persistent"))),
    gate("Correct result (but", rule("rerun", "Correct result", _WHO + r"Correct result \(but possible [Aa]pplication error", fix=_rerun("correct"))),
    gate("rerun on a different GPU", rule("rerun", "different GPU", _WHO + r"Need to rerun on a different GPU", fix=_rerun("repeats_here"))),
    gate("rescheduled on the same GPU", rule("rerun_same_gpu", "rescheduled on the same GPU")),
    gate(
        "found ",
        rule(
            "nan_local",
            "found ",
            r"(?:[Rr]ank (?P<rank>\d{1,7}): )?found (?P<what_number>NaN|Inf|nan|inf) in (?P<where>local [\w ]{2,60}|input[\w ]{0,40}|batch[\w ]{0,40}|gradients?[\w ]{0,40}|loss[\w ]{0,40})"
            r"(?:.{0,120}?[Dd]evice:? (?P<gpu>\d{1,3}),? node:? (?P<node>[\w.-]{1,120}))?",
        ),
    ),
)

NAN_GATES: Final[Gates] = (
    gate(
        "OVERFLOW!",
        rule("overflow", "OVERFLOW!", r"OVERFLOW! Rank (?P<rank>\d{1,7}) Skipping step\.(?:.{0,40}?loss scale: (?P<scale>[\d.]{1,20}))?(?:.{0,40}?[Rr]educing to (?P<next_scale>[\d.]{1,20}))?"),
    ),
    gate("loss scale already at minimum", rule("scale_minimum", "loss scale already at minimum")),
    gate("minimum loss scale reached", rule("scale_minimum", "minimum loss scale reached")),
    *(
        gate(
            word,
            rule(
                "nan_text",
                word,
                r"(?:\brank[ :=]?(?P<rank>\d{1,7})\b.{0,80}?)?(?:loss|grad\w{0,6}|norm|weights?|logits|activations?|output|param\w{0,6}|batch|input|sample|tensor)\b[^|\n]{0,60}?\b(?:is|are|became|becomes|was|contains?|has|have|=|:|of|went|turned|to|non-finite|not finite)\b[^|\n]{0,30}?\b(?:nans?|infs?|non-finite)\b(?![_(=])"
                r"|\b(?:nans?|infs?|non-finite)\b (?:\w{1,12} ){0,2}?(?:detected|found|encountered|in|loss|gradients?|grads?|values?)\b.{0,80}",
                flags=_I,
                fix=None,
            ),
        )
        for word in ("NaN", "nan ", " nan", "non-finite", "NAN")
    ),
    gate("hash", rule("replica_mismatch", "hash", r"(?i:(?:weight|param\w{0,6}|checksum|replica)[\w ]{0,40} hash\w{0,3}\b.{0,60}(?:mismatch|do(?:es)? not match|don't match|differ))(?:.{0,60}?\brank (?P<rank>\d{1,7}))?")),
)

LIFE_GATES: Final[Gates] = (
    gate(
        "heckpoint",
        rule("resumed", "load", r"(?i:(?:successfully )?(?:loaded|loading|resum\w{2,3}|restor\w{2,3})[^\n]{0,60}checkpoint)(?:.{0,160}?(?:at|iteration|step|iter_|step_|global_step)[ _=-]{0,2}(?P<step>\d{1,12}))?", flags=0),
        rule("resumed", "esum", r"[Rr]esum\w{2,3}[^\n]{0,60}checkpoint(?:.{0,160}?(?:at|iteration|step|iter_|step_)[ _=-]{0,2}(?P<step>\d{1,12}))?"),
        rule("fresh_start", "random", r"will not load any checkpoints and will start from random"),
        rule("saved", "sav", r"(?i:successfully saved|saved)[^\n]{0,20}checkpoint(?:.{0,120}?(?:iteration|step|iter_|step_)[ _=:-]{0,2}\s{0,6}(?P<step>\d{1,12}))?"),
        rule("saved", "omplete", r"checkpoint (?:step|iter)?_?(?P<step>\d{1,12})? ?(?:complete|committed|saved)"),
        rule("phase_checkpoint", "sav", r"(?i:saving|writing|start\w{0,3} (?:to )?sav\w{1,3}|flushing|uploading)[^\n]{0,40}checkpoint"),
        rule("phase_checkpoint", "writing", r"writing[^\n]{0,40}checkpoint"),
    ),
    gate("esuming from", rule("resumed", "esuming from", r"esuming from (?:iteration|step|checkpoint)?\S{0,120}?(?P<step>\d{1,12})?\b")),
    gate("valuat", rule("phase_eval", "valuat", r"(?i:(?:start\w{0,3}|begin\w{0,4}|running|evaluating)\b.{0,30}(?:evaluat|validat)|\bevaluating\b|evaluation started)")),
    gate("ompil", rule("phase_compile", "ompil", r"(?i:compiling|recompil|torch\.compile|compilation (?:start|of|took))")),
)
