package broker

import "github.com/strandline-io/strandline/broker/machine"

// Authorize sets who may do what, for which there is no setting yet.
func Authorize(c *Config, may machine.Authorizer) { c.may = may }
