"""From Python and CUDA sources to a resolved model that lint rules query."""

from gpudoctor.source.project import Module, Problem, Project, load_project, parse_sources

__all__ = ["Module", "Problem", "Project", "load_project", "parse_sources"]
