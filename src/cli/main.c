#include <stdio.h>

#include <penstock/version.h>

int main(void)
{
	printf("penstock %s\n", PENSTOCK_VERSION);
	return 0;
}
