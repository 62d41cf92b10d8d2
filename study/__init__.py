"""The study: settings, store, weights, exhibits and workflow around `cascadetta_lib`."""
