"""What a job is; how it is stored, routed, run and reported."""
