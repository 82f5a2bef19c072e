/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the penstock C API; the build reads it from here, so that there is one place to
 * change. */
#ifndef PENSTOCK_VERSION_H
#define PENSTOCK_VERSION_H

#define PENSTOCK_VERSION "0.1.0"

#endif
