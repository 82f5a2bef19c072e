#include "cli/lazy/library.h"

#include <dlfcn.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/banned.h"

static bool load(struct lazy_library *library)
{
	void *handle = dlopen(library->file, RTLD_LAZY | RTLD_LOCAL);

	if (!handle) {
		log_error("cannot load a library: %s", dlerror());
		return false;
	}
	for (size_t i = 0; i < library->n; i++) {
		library->functions[i] = dlsym(handle, library->names[i]);
		if (!library->functions[i]) {
			log_error("%s is too old: %s", library->file, dlerror());
			return false;
		}
	}
	return true;
}

bool lazy_library_load(struct lazy_library *library)
{
	LOCK_SCOPE(&library->lock);
	if (!library->tried) {
		library->tried = true;
		library->loaded = load(library);
	}
	return library->loaded;
}
