"""What only our own tests need: scratch databases, real nodes as processes, waiting for conditions."""
