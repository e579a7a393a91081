// `brim version`: the version, and the devices and plug-ins of this machine.
#include "cli/job/cli_job.h"

#include <string.h>

static const char *compiler(void) {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown";
#endif
}

static const char *const backend_names[] = {"cuda", "cpu", "ref"};

static brim_status put_text(json_t *object, const char *key, const char *text) {
  return brim_json_put(object, key, text ? json_string(text) : json_null());
}

static brim_status put_plugins(const brim_registry *registry, json_t *root) {
  BRIM_TRY(brim_json_put(root, "plugins", json_array()));
  json_t *list = json_object_get(root, "plugins");
  for (size_t i = 0; i < brim_registry_plugin_count(registry); i++) {
    const char *name, *version, *path, *why;
    brim_registry_plugin(registry, i, &name, &version, &path, &why);
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(put_text(item, "name", name));
    BRIM_TRY(put_text(item, "version", version));
    BRIM_TRY(put_text(item, "path", path));
    BRIM_TRY(put_text(item, "declined", why));
  }
  return BRIM_OK;
}

// Calls fn for every device of every available backend.
typedef brim_status (*device_fn)(void *ctx, const char *backend, int index,
                                 const brim_device_info *info);
static brim_status each_device(const brim_registry *registry, device_fn fn, void *ctx) {
  for (size_t b = 0; b < sizeof backend_names / sizeof backend_names[0]; b++) {
    const brim_backend *backend = brim_registry_backend(registry, backend_names[b]);
    int count = 0;
    if (!backend || backend->device_count(&count)) continue;
    for (int i = 0; i < count; i++) {
      brim_device_info info;
      memset(&info, 0, sizeof info);
      if (backend->device_info(i, &info)) continue;
      BRIM_TRY(fn(ctx, backend->name, i, &info));
    }
  }
  return BRIM_OK;
}

static brim_status put_device(void *ctx, const char *backend, int index,
                              const brim_device_info *info) {
  json_t *item = json_object();
  BRIM_TRY(brim_json_push((json_t *)ctx, item));
  BRIM_TRY(put_text(item, "backend", backend));
  BRIM_TRY(brim_json_put(item, "index", json_integer(index)));
  BRIM_TRY(put_text(item, "name", info->name));
  BRIM_TRY(put_text(item, "id", info->id[0] ? info->id : NULL));
  BRIM_TRY(put_text(item, "library", info->library));
  BRIM_TRY(brim_json_put(item, "total_bytes", json_integer((json_int_t)info->total_bytes)));
  return brim_json_put(item, "free_bytes", json_integer((json_int_t)info->free_bytes));
}

static brim_status fill_json(const brim_registry *registry, json_t *root) {
  BRIM_TRY(put_text(root, "version", BRIM_VERSION));
  BRIM_TRY(put_text(root, "compiler", compiler()));
  BRIM_TRY(brim_json_put(root, "plugin_abi", json_integer(BRIM_PLUGIN_ABI)));
  BRIM_TRY(put_plugins(registry, root));
  BRIM_TRY(brim_json_put(root, "devices", json_array()));
  return each_device(registry, put_device, json_object_get(root, "devices"));
}

static brim_status add_device(void *ctx, const char *backend, int index,
                              const brim_device_info *info) {
  char total[32];
  brim_format_bytes(info->total_bytes, total);
  if (info->kind == BRIM_DEVICE_GPU) {
    brim_str_printf((brim_str *)ctx, "  %s:%d  %s, %s", backend, index, info->name, total);
  } else {
    brim_str_printf((brim_str *)ctx, "  %-6s  %s, %s", backend, info->name, total);
  }
  if (info->library[0]) brim_str_printf((brim_str *)ctx, ", %s", info->library);
  brim_str_append_char((brim_str *)ctx, '\n');
  return BRIM_OK;
}

static void fill_text(brim_cli *cli, const brim_registry *registry, brim_str *out) {
  brim_ui_styled(out, &cli->out, BRIM_UI_BOLD, "brim " BRIM_VERSION);
  brim_str_printf(out, brim_tr("\nbuilt with %s, plug-in ABI %d\n"), compiler(), BRIM_PLUGIN_ABI);
  brim_str_append(out, brim_tr("\nDevices:\n"));
  brim_status ignored = each_device(registry, add_device, out);
  (void)ignored;  // add_device only appends, and the string keeps a failure
  brim_str_append(out, brim_tr("\nPlug-ins:\n"));
  size_t count = brim_registry_plugin_count(registry);
  if (count == 0) brim_str_append(out, brim_tr("  none\n"));
  for (size_t i = 0; i < count; i++) {
    const char *name, *version, *path, *why;
    brim_registry_plugin(registry, i, &name, &version, &path, &why);
    if (why) {
      brim_str_printf(out, brim_tr("  %-6s  not used: %s\n"), name, why);
    } else {
      brim_str_printf(out, "  %-6s  %s  %s\n", name, version, path);
    }
  }
}

static brim_status run(brim_cli *cli) {
  if (cli->parse.positional_count > 0) {
    return brim_cli_usage(cli, BRIM_N_("version takes no argument, but '%.100s' was given"),
                          cli->parse.positional[0]);
  }
  brim_registry *registry = NULL;
  BRIM_TRY(brim_cli_registry(cli, &registry));
  brim_status status;
  if (cli->json) {
    json_t *root = json_object();
    status = brim_cli_finish_json(cli, root, fill_json(registry, root));
  } else {
    brim_str text;
    brim_str_init(&text);
    fill_text(cli, registry, &text);
    status = brim_cli_finish_text(cli, &text, BRIM_OK);
  }
  brim_registry_destroy(registry);
  return status;
}

static const brim_option options[] = {{0}};

const brim_cli_command brim_cli_version = {
    .name = "version",
    .summary = BRIM_N_("show the version, the plug-ins and the devices found"),
    .usage = "[--json]",
    .about = BRIM_N_("Prints the version, the usable devices, and for each plug-in its file or the "
                     "reason why brim does not use it."),
    .examples = "",
    .options = options,
    .run = run,
};
