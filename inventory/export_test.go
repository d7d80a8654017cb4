package inventory

// GHWPCI is for tests that compare ghw's part with the whole.
var GHWPCI = ghwPCI
