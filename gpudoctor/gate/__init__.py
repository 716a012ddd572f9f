"""The gate before a merge: measure, compare with a baseline, judge against budgets."""
