"""resync: the papers on how often, and with whom, data-parallel workers synchronise, regenerated and audited."""
