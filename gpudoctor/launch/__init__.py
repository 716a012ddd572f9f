"""Start the user's script on many ranks, watch it, and bring the evidence home."""
