/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "fake.h"

__attribute__((constructor)) static void Say(void) { printf("front end first: %d\n", HasFake()); }
