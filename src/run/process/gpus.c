#include "run/process/gpus.h"

#include <dlfcn.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "records/claims.h"

#define NVML "libnvidia-ml.so.1"

/* nvml.h: handles are pointers, results are 0 for success. */
typedef void *nvml_device;
struct nvml_utilization {
	unsigned gpu, memory; /* per cent of the time */
};
struct nvml_memory {
	unsigned long long total, free, used; /* bytes */
};

static struct {
	bool tried, works;
	int (*count)(unsigned *n);
	int (*device)(unsigned index, nvml_device *device);
	int (*minor)(nvml_device device, unsigned *minor);
	int (*utilization)(nvml_device device, struct nvml_utilization *out);
	int (*memory)(nvml_device device, struct nvml_memory *out);
	nvml_device devices[CLAIMS_MAX_GPUS]; /* by minor number; NULL if there is none */
} nvml;

static void find_devices(void)
{
	unsigned n = 0;

	if (nvml.count(&n) != 0)
		return;
	for (unsigned i = 0; i < n; i++) {
		nvml_device device;
		unsigned minor;

		if (nvml.device(i, &device) == 0 && nvml.minor(device, &minor) == 0 &&
			minor < CLAIMS_MAX_GPUS)
			nvml.devices[minor] = device;
	}
}

/* The library stays loaded: it has threads of its own. */
static void load(void)
{
	void *library = dlopen(NVML, RTLD_NOW | RTLD_LOCAL);
	int (*init)(void);
	const struct {
		const char *name;
		void *function;
	} wanted[] = {
		{"nvmlInit_v2", &init},
		{"nvmlDeviceGetCount_v2", &nvml.count},
		{"nvmlDeviceGetHandleByIndex_v2", &nvml.device},
		{"nvmlDeviceGetMinorNumber", &nvml.minor},
		{"nvmlDeviceGetUtilizationRates", &nvml.utilization},
		{"nvmlDeviceGetMemoryInfo", &nvml.memory},
	};

	nvml.tried = true;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		void **function = wanted[i].function;

		*function = library ? dlsym(library, wanted[i].name) : NULL;
		if (!*function)
			return;
	}
	nvml.works = init() == 0;
	if (nvml.works)
		find_devices();
}

bool gpus_read(const int *minors, size_t n, struct gpus_used *out)
{
	*out = (struct gpus_used){0};
	if (!nvml.tried)
		load();
	for (size_t i = 0; i < n; i++) {
		struct nvml_utilization busy;
		struct nvml_memory memory;
		nvml_device device = nvml.works && minors[i] >= 0 && minors[i] < CLAIMS_MAX_GPUS
					     ? nvml.devices[minors[i]]
					     : NULL;

		if (!device || nvml.utilization(device, &busy) != 0 ||
			nvml.memory(device, &memory) != 0)
			return false;
		out->busy += busy.gpu / 100.0;
		out->memory += memory.used;
	}
	return nvml.works;
}

size_t gpus_parse(const char *list, int *minors, size_t max)
{
	size_t n = 0;

	while (list && *list && n < max) {
		_cleanup_free_ char *word = strndup(list, strcspn(list, ","));
		uint64_t value;

		if (!word || !str_to_u64(word, 0, INT32_MAX, &value))
			return 0;
		minors[n++] = (int)value;
		list += strlen(word) + (list[strlen(word)] == ',');
	}
	return n;
}
