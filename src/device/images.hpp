// Which GPU architectures this build holds kernel images for, and on which devices an image runs.
#pragma once

#include <string>
#include <vector>

namespace raggedmla {

/// "sm_80", "sm_90a", "gfx942", ...; "compute_80" is PTX that the driver compiles for newer devices. From CMake.
const std::vector<std::string>& built_images();

/// Whether `image` runs on a device of `architecture` ("sm_90", "gfx942"):
/// sm_80 on 8.0 to 8.9, sm_90a on 9.0 only, sm_100f on 10.x, compute_80 on 8.0 and everything newer; gfx on its like.
bool image_runs_on(const std::string& image, const std::string& architecture);

/// Whether any image of this build does.
bool has_image_for(const std::string& architecture);

/// "no kernel image for sm_75; this build holds sm_80, sm_90a, compute_80".
std::string missing_image_text(const std::string& architecture);

}  // namespace raggedmla
