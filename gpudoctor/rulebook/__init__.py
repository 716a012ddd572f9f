"""Load rules, run their detectors, group what they saw into findings."""
