"""Fault scripts: what one fault of each class does to hosts, job and signals, and what the truth about it is.

A script knows nothing of the judge; the checkers know nothing of the scripts. One module for each kind of part; `parts` has what
they share. Importing this registers all of them.
"""

from drills.simulate.faults import gpu, host, job, monitor, network
from drills.simulate.faults.parts import SCRIPTS, Script, Victim, known, peers_complain, truth

__all__ = ["SCRIPTS", "Script", "Victim", "gpu", "host", "job", "known", "monitor", "network", "peers_complain", "truth"]
