"""HTA's load, overlap and idle time of a folder of traces; run with HTA's own Python."""

import sys

from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_dir=sys.argv[1])
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_idle_time_breakdown(ranks=sorted(analysis.t.get_ranks()), visualize=False)
