"""Property tests here have no deadline, so that a busy machine cannot fail them."""

from hypothesis import settings

settings.register_profile("pure", deadline=None, max_examples=60)
settings.load_profile("pure")
