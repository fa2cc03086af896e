package drivertest

// Impatient returns cfg for a store that is known to be broken: what is late has not happened.
func Impatient(cfg Config) Config {
	cfg.impatient = true
	return cfg
}
