"""Callbacks for trainers that own the loop; each module needs its trainer's package installed."""
