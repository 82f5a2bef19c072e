#include "cli/lazy/library.h"

#include <dlfcn.h>

#include "base/cleanup.h"
#include "base/log.h"

static bool load(struct lazy_library *library)
{
	void *handle = dlopen(library->file, RTLD_LAZY | RTLD_LOCAL);

	if (!handle) {
		log_error("cannot load a library: %s", dlerror());
		return false;
	}
	for (struct lazy_function *f = library->begin; f < library->end; f++) {
		f->real = dlsym(handle, f->name);
		if (!f->real) {
			log_error("cannot use '%s': it is too old: %s", library->file, dlerror());
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
