#pragma once

/// CLI11 in a form that is compiled once, in parse.cpp, if it came as separate headers: compiled in each file
/// that adds options it takes five seconds there.
#if __has_include(<CLI/impl/App_inl.hpp>)
#define CLI11_COMPILE
#endif
#include <CLI/CLI.hpp>
