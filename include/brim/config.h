// A brim configuration: a YAML file plus overrides, resolved against the key table.
#ifndef BRIM_CONFIG_H_
#define BRIM_CONFIG_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_config brim_config;

// Open a YAML file (NULL = defaults only) with overrides "key.path=value". Errors carry file, line
// and column in brim_status_detail().
BRIM_API brim_status brim_config_open(const char *path, const char *const *overrides,
                                      size_t override_count, brim_config **out);
BRIM_API void brim_config_close(brim_config *config);

// Typed reads by canonical key or alias ("data.batch_size"). BRIM_ENOENT for an unknown key,
// BRIM_EINVAL for another type or an unset value. Strings live as long as the config.
BRIM_API brim_status brim_config_get_int(const brim_config *config, const char *key, int64_t *out);
BRIM_API brim_status brim_config_get_float(const brim_config *config, const char *key, double *out);
BRIM_API brim_status brim_config_get_bool(const brim_config *config, const char *key, bool *out);
BRIM_API brim_status brim_config_get_string(const brim_config *config, const char *key,
                                            const char **out);

// The resolved config as JSON text (2-space indent); free with brim_config_text_free.
BRIM_API brim_status brim_config_json(const brim_config *config, char **out);
BRIM_API void brim_config_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CONFIG_H_
