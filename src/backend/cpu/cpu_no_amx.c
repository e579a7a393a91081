// Takes the place of the AMX files on machines that are not x86.
#include <limits.h>

#include "backend/cpu/cpu_amx.h"

const int brim_cpu_amx_least_images = INT_MAX;
const brim_cpu_conv_table brim_cpu_conv_amx = {0};
bool brim_cpu_amx_permitted(void) { return false; }
