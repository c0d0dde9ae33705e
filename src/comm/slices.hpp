#pragma once

#include "base/range.hpp"

namespace minitaw::comm {

using Slice = Range;
using minitaw::slice;

}  // namespace minitaw::comm
