# SPDX-License-Identifier: BSD-3-Clause
"""Every module here that has a class derived from model.Suite is a suite; this is their order."""

import importlib
import inspect
import pkgutil

from harness import model

ORDER = ("micro", "fio", "sqlite", "rocksdb", "mixed", "pool", "overhead", "everyday", "disk",
         "frontends", "recovery", "guest", "mirror")


def discover():
    """All suites, in order."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module.name}")
        found += [each() for _, each in inspect.getmembers(module, inspect.isclass)
                  if issubclass(each, model.Suite) and each.__module__ == module.__name__
                  and each.name]
    return sorted(found, key=lambda suite: (
        ORDER.index(suite.name) if suite.name in ORDER else len(ORDER), suite.name))
