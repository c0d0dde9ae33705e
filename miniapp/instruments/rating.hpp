// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "instruments/predict/rating.hpp"
#include "print.hpp"

namespace minitaw::app {
/// Prints the cases of each rating, then the ratings.
void tell_ratings(const predict::Ratings& ratings, const std::string& heading);
Json ratings_json(const predict::Ratings& ratings);
}  // namespace minitaw::app
