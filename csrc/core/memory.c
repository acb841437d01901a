/* SPDX-License-Identifier: MIT
 *
 * How much memory can this process still get? The machine's MemAvailable, or what is left of the
 * limit of its control group (version 2) when that is less. Pages of the file cache can be had back.
 */
#include "pch_window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number after `key` at the start of a line of `path`; -1: there is none. */
static int64_t number_in(const char *path, const char *key)
{
    char line[256];
    long long value = -1;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        char *digits = line + strlen(key), *end;
        value = strtoll(digits, &end, 10);
        if (end == digits) value = -1; /* "max" */
        break;
    }
    if (file) fclose(file);
    return value;
}

static int64_t left_in_group(const char *group)
{
    char path[512];
    snprintf(path, sizeof path, "/sys/fs/cgroup%.400s/memory.max", group);
    int64_t limit = number_in(path, "");
    snprintf(path, sizeof path, "/sys/fs/cgroup%.400s/memory.current", group);
    int64_t used = number_in(path, "");
    if (limit < 0 || used < 0) return INT64_MAX; /* "max", or no such group */
    snprintf(path, sizeof path, "/sys/fs/cgroup%.400s/memory.stat", group);
    int64_t active = number_in(path, "active_file "), inactive = number_in(path, "inactive_file ");
    used -= (active > 0 ? active : 0) + (inactive > 0 ? inactive : 0);
    return used < limit ? limit - used : 0;
}

int64_t pch_available_bytes(void)
{
    int64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    int64_t least = kib < 0 ? INT64_MAX : kib * 1024;
    char group[400] = "";
    FILE *file = fopen("/proc/self/cgroup", "r");
    bool found = false;
    while (file && !found && fgets(group, sizeof group, file)) found = strncmp(group, "0::", 3) == 0;
    if (file) fclose(file);
    if (!found) return least;
    char *path = group + 3;
    path[strcspn(path, "\n")] = '\0';
    for (;;) { /* the limits of all groups around this one hold as well */
        int64_t left = left_in_group(path);
        if (left < least) least = left;
        char *slash = strrchr(path, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}
