// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"fmt"
	"strings"
)

// Weights has the settings for how pods get the files of models.
type Weights struct {
	// CAConfigMap is the name of a ConfigMap in each Workspace's namespace, with certificate authorities in ca.crt.
	CAConfigMap string
	// HTTPSProxy and NoProxy have the meaning of the variables with these names.
	HTTPSProxy, NoProxy string
	// Caches are the PersistentVolumeClaims of shared caches by namespace.
	Caches map[string]string
	// CacheLimitGiB bounds each cache; 0 means the size of its volume.
	CacheLimitGiB int
	// CacheVerifyWhole makes agents hash a whole file of a cache at each use.
	CacheVerifyWhole bool
}

func (w *Weights) bind(flags *flag.FlagSet) {
	flags.StringVar(&w.CAConfigMap, "weights-ca-config-map", "",
		"ConfigMap in each Workspace's namespace with the hub's certificate authorities under the key ca.crt")
	flags.StringVar(&w.HTTPSProxy, "weights-https-proxy", "", "proxy for fetching weights")
	flags.StringVar(&w.NoProxy, "weights-no-proxy", "", "comma-separated hosts to fetch weights from without the proxy")
	flags.Func("weights-cache", "PersistentVolumeClaim for the weights cache of a namespace, as namespace=claim; repeatable", w.addCache)
	flags.IntVar(&w.CacheLimitGiB, "weights-cache-limit-gib", 0, "size limit of each cache in GiB; 0 means the size of its volume")
	flags.BoolVar(&w.CacheVerifyWhole, "weights-cache-verify-whole", false,
		"hash every cached file completely at each use; by default, compare its size and a sample")
}

func (w *Weights) addCache(v string) error {
	namespace, claim, ok := strings.Cut(v, "=")
	if !ok || namespace == "" || claim == "" {
		return fmt.Errorf("%q is not of the form namespace=claim", v)
	}
	if w.Caches == nil {
		w.Caches = map[string]string{}
	}
	w.Caches[namespace] = claim
	return nil
}

func (w *Weights) validate() []error {
	var problems []error
	if w.CacheLimitGiB < 0 {
		problems = append(problems, fmt.Errorf("--weights-cache-limit-gib is %d: it must be at least 0", w.CacheLimitGiB))
	}
	if w.HTTPSProxy != "" && !strings.HasPrefix(w.HTTPSProxy, "http://") && !strings.HasPrefix(w.HTTPSProxy, "https://") {
		problems = append(problems, fmt.Errorf("--weights-https-proxy is %q: it must begin with http:// or https://", w.HTTPSProxy))
	}
	return problems
}
