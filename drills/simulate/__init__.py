"""The simulator: a fleet of any size for any time, in virtual time, judged by the real core.

Only episodes are simulated: a fault, a freeze long enough to reach a deadline, a run of lost heartbeats. Between them the
fleet is quiet, nothing has a deadline, and time is skipped. Each episode runs the real `Engine` of every witness and the
real `Council` over a cell of the fleet (the nodes concerned and enough others), with a virtual network, clock and job.

`mix` and `jitter` say what happens, `timeline` when and to whom, `faults` what one fault does, `episode` plays it, `baselines`
judges the very same arrivals by other detectors, `check` compares decisions with the truth, `ettr` and `report` add up.
"""
