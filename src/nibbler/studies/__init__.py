"""From a spec to results: what to run, where it is kept, who runs it, and how it is read."""
