"""Archives of results: what runs measured, packed small enough for git, and everything that is drawn from it.

An archive has, for every scale and paper, the runs that have ended (`pack`). It is read by unpacking it into folders
of runs, which all readers of results accept as they are. So what is drawn from an archive needs no training, and no
code of its own (`redraw`).
"""
