// SPDX-License-Identifier: Apache-2.0
// The static program that spawns are measured with.
int main() { return 0; }
