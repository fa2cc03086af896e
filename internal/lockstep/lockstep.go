// Package lockstep makes a build fail that mixes versions of dlock's modules. They share internal
// packages, so they are released together and only work together.
package lockstep

// OneVersionOfAllModulesDevel has the version in its name. A release renames it here and where
// the other modules refer to it.
const OneVersionOfAllModulesDevel = true
