"""The engine child: owns the models of one device, commits results, wakes waiters."""
