// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

// refusal is a manifest that is refused at apply.
type refusal struct {
	reason string
	// metadata is a name or annotations; without a name the row gets one.
	metadata string
	body     string
	// everRefused reports whether the field has had this type since the first version, so no such value was ever
	// stored.
	everRefused bool
	// want is the whole message, without the name before it.
	want string
}

// refusals returns a row for every rule, or several if a rule can be broken in several ways.
func refusals() []refusal {
	return []refusal{
		{
			reason: "a Workspace is for one of the two",
			body:   "resource: {instanceType: x}",
			want:   "inference: Invalid value: set exactly one of inference and tuning: inference to serve a model, tuning to fine-tune one",
		},
		{
			reason: "a Workspace is for one of the two",
			body: `tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}
inference: {preset: {name: m}}`,
			want: "inference: Invalid value: set exactly one of inference and tuning: inference to serve a model, tuning to fine-tune one",
		},
		{
			reason: "tuning takes whole GPUs",
			body: `tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}
resource: {partition: {mode: accelerator, count: 1}}`,
			want: "resource.partition: Invalid value: resource.partition is for inference only: remove it, tuning takes whole GPUs",
		},
		{
			reason: "tuning runs on one machine",
			body: `tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}
resource: {count: 2}`,
			want: "resource.count: Invalid value: resource.count must be 1 with tuning, which runs on one machine: remove it",
		},
		{
			reason: "zero machines is an attempt to scale to zero",
			body: `resource: {count: 0}
inference: {preset: {name: m}}`,
			want: "resource.count: Invalid value: 0: resource.count must be between 1 and 1000: leave it out to let the planner decide, set suspend: true to release all machines",
		},
		{
			reason: "no number of machines",
			body: `resource: {count: -1}
inference: {preset: {name: m}}`,
			want: "resource.count: Invalid value: -1: resource.count must be between 1 and 1000: leave it out to let the planner decide, set suspend: true to release all machines",
		},
		{
			reason: "more than any client can count to",
			body: `resource: {count: 3000000000}
inference: {preset: {name: m}}`,
			want: "resource.count: Invalid value: 3000000000: resource.count must be between 1 and 1000: leave it out to let the planner decide, set suspend: true to release all machines",
		},
		{
			reason: "machines cannot carry a negated label",
			body: `resource: {labelSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}}
inference: {preset: {name: m}}`,
			want: "resource.labelSelector.matchExpressions: Invalid value: resource.labelSelector.matchExpressions supports only operator In with exactly one value, because bought machines carry the selector as labels: use matchLabels",
		},
		{
			reason: "machines carry one value of a label",
			body: `resource: {labelSelector: {matchExpressions: [{key: a, operator: In, values: [b, c]}]}}
inference: {preset: {name: m}}`,
			want: "resource.labelSelector.matchExpressions: Invalid value: resource.labelSelector.matchExpressions supports only operator In with exactly one value, because bought machines carry the selector as labels: use matchLabels",
		},
		{
			reason: "no value at all",
			body: `resource: {labelSelector: {matchExpressions: [{key: a, operator: In}]}}
inference: {preset: {name: m}}`,
			want: "resource.labelSelector.matchExpressions: Invalid value: resource.labelSelector.matchExpressions supports only operator In with exactly one value, because bought machines carry the selector as labels: use matchLabels",
		},
		{
			reason: "no operator at all",
			body: `resource: {labelSelector: {matchExpressions: [{key: a, values: [b]}]}}
inference: {preset: {name: m}}`,
			want: "[resource.labelSelector.matchExpressions[0].operator: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
		},
		{
			reason: "reserved labels select nothing",
			body: `resource: {labelSelector: {matchLabels: {kaito.sh/workspace: a}, matchExpressions: [{key: karpenter.kaito.sh/workspace-name, operator: In, values: [b]}]}}
inference: {preset: {name: m}}`,
			want: "resource.labelSelector: Invalid value: resource.labelSelector holds only labels that the controller sets on machines: add your own label",
		},
		{
			reason: "one machine type and a choice of types contradict",
			body: `resource: {instanceType: a, placement: {instanceTypes: [b]}}
inference: {preset: {name: m}}`,
			want: "resource.placement.instanceTypes: Invalid value: resource.placement.instanceTypes and resource.instanceType cannot be combined: keep instanceType for one machine type, instanceTypes for a choice",
		},
		{
			reason: "a price without a number",
			body: `resource: {placement: {maxHourlyPrice: cheap}}
inference: {preset: {name: m}}`,
			want: `resource.placement.maxHourlyPrice: Invalid value: "cheap": resource.placement.maxHourlyPrice must be a decimal number of USD per hour, such as "7.50"`,
		},
		{
			reason: "a price is not negative",
			body: `resource: {placement: {maxHourlyPrice: "-1"}}
inference: {preset: {name: m}}`,
			want: `resource.placement.maxHourlyPrice: Invalid value: "-1": resource.placement.maxHourlyPrice must be a decimal number of USD per hour, such as "7.50"`,
		},
		{
			reason: "a price has no unit",
			body: `resource: {placement: {maxHourlyPrice: 5 USD}}
inference: {preset: {name: m}}`,
			want: `resource.placement.maxHourlyPrice: Invalid value: "5 USD": resource.placement.maxHourlyPrice must be a decimal number of USD per hour, such as "7.50"`,
		},
		{
			reason: "a price is a string",
			body: `resource: {placement: {maxHourlyPrice: 5}}
inference: {preset: {name: m}}`,
			everRefused: true,
			want:        `[resource.placement.maxHourlyPrice: Invalid value: "integer": resource.placement.maxHourlyPrice in body must be of type string: "integer", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			reason: "a list of types that is a set",
			body: `resource: {placement: {instanceTypes: [a, a]}}
inference: {preset: {name: m}}`,
			want: "resource.placement.instanceTypes: Invalid value: resource.placement.instanceTypes names a machine type twice: remove one",
		},
		{
			reason: "a GPU named twice",
			body: `resource: {placement: {accelerators: [H100-80, L40S, H100-80]}}
inference: {preset: {name: m}}`,
			want: "resource.placement.accelerators: Invalid value: resource.placement.accelerators names a GPU twice: remove one",
		},
		{
			reason: "a zone named twice",
			body: `resource: {placement: {zones: [a, a]}}
inference: {preset: {name: m}}`,
			want: "resource.placement.zones: Invalid value: resource.placement.zones names a zone twice: remove one",
		},
		{
			reason: "a way to pay named twice",
			body: `resource: {placement: {capacityTypes: [spot, spot]}}
inference: {preset: {name: m}}`,
			want: "resource.placement.capacityTypes: Invalid value: resource.placement.capacityTypes names a capacity type twice: remove one",
		},
		{
			reason: "an empty zone",
			body: `resource: {placement: {zones: [""]}}
inference: {preset: {name: m}}`,
			want: `resource.placement.zones[0]: Invalid value: "": resource.placement.zones[0] in body should be at least 1 chars long`,
		},
		{
			reason: "more machine types than the planner is asked to rank",
			body: `resource: {placement: {instanceTypes: [t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15, t16, t17, t18, t19, t20]}}
inference: {preset: {name: m}}`,
			want: "[resource.placement.instanceTypes: Too many: 21: must have at most 20 items, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
		},
		{
			reason: "an unknown way to pay",
			body: `resource: {placement: {capacityTypes: [free]}}
inference: {preset: {name: m}}`,
			want: `[resource.placement.capacityTypes[0]: Unsupported value: "free": supported values: "reserved", "on-demand", "spot", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			reason: "an unknown source of nodes",
			body: `resource: {placement: {nodeSource: Anywhere}}
inference: {preset: {name: m}}`,
			want: `[resource.placement.nodeSource: Unsupported value: "Anywhere": supported values: "Any", "Existing", "Provisioned", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			reason: "a NodeClass without a kind",
			body: `resource: {placement: {nodeClassRef: {group: a, name: b}}}
inference: {preset: {name: m}}`,
			want: "[resource.placement.nodeClassRef.kind: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
		},
		{
			reason: "a slice without its size",
			body: `resource: {partition: {mode: mig}}
inference: {preset: {name: m}}`,
			want: "resource.partition.profile: Invalid value: resource.partition.profile must name a MIG profile with mode mig, such as 1g.10gb",
		},
		{
			reason: "no such slice",
			body: `resource: {partition: {mode: mig, profile: half}}
inference: {preset: {name: m}}`,
			want: "resource.partition.profile: Invalid value: resource.partition.profile must name a MIG profile with mode mig, such as 1g.10gb",
		},
		{
			reason: "a number of GPUs says nothing about a slice",
			body: `resource: {partition: {mode: mig, profile: 1g.10gb, count: 1}}
inference: {preset: {name: m}}`,
			want: "resource.partition.count: Invalid value: resource.partition.count is for mode accelerator only: remove it, or set mode to accelerator",
		},
		{
			reason: "how many GPUs",
			body: `resource: {partition: {mode: accelerator}}
inference: {preset: {name: m}}`,
			want: "resource.partition.count: Invalid value: resource.partition.count must be set with mode accelerator: set it to the number of whole GPUs",
		},
		{
			reason: "a slice says nothing about a number of GPUs",
			body: `resource: {partition: {mode: accelerator, count: 1, profile: 1g.10gb}}
inference: {preset: {name: m}}`,
			want: "resource.partition.profile: Invalid value: resource.partition.profile is for mode mig only: remove it, or set mode to mig",
		},
		{
			reason: "an unknown partition",
			body: `resource: {partition: {mode: share}}
inference: {preset: {name: m}}`,
			want: `[resource.partition.mode: Unsupported value: "share": supported values: "mig", "accelerator", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			reason: "a partition of what kind",
			body: `resource: {partition: {count: 1}}
inference: {preset: {name: m}}`,
			want: "[resource.partition.mode: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
		},
		{
			reason: "a model or a pod",
			body:   "inference: {config: c}",
			want:   "inference: Invalid value: set exactly one of inference.preset and inference.template: preset to name a model, template to bring your own pod",
		},
		{
			reason: "a model or a pod, not both",
			body:   "inference: {preset: {name: m}, template: {spec: {containers: [{name: a, image: b}]}}}",
			want:   "inference: Invalid value: set exactly one of inference.preset and inference.template: preset to name a model, template to bring your own pod",
		},
		{
			reason: "an engine is the template's own business",
			body:   "inference: {template: {spec: {containers: [{name: a, image: b}]}}, engine: {name: vllm}}",
			want:   "inference.engine: Invalid value: inference.engine has no effect on inference.template: put flags, image and environment into the template",
		},
		{
			reason: "nothing is known about a template's model",
			body:   "inference: {template: {spec: {containers: [{name: a, image: b}]}}, objectives: {concurrency: 1}}",
			want:   "inference.objectives: Invalid value: inference.objectives needs inference.preset, because nothing is known about the model in a template: remove it",
		},
		{
			reason: "a template is a pod",
			body:   "inference: {template: {spec: {containers: [{name: a, image: b}]}}, pod: {schedulerName: a}}",
			want:   "inference.pod: Invalid value: inference.pod cannot be used with inference.template: put its fields into the template",
		},
		{
			reason: "where weights come from is the template's own business",
			body:   "inference: {template: {spec: {containers: [{name: a, image: b}]}}, weights: {persistentVolumeClaim: {claimName: c}}}",
			want:   "inference.weights: Invalid value: inference.weights has no effect on inference.template: mount the files in the template",
		},
		{
			reason: "weights come from somewhere",
			body:   "inference: {preset: {name: m}, weights: {path: a}}",
			want:   "inference.weights: Invalid value: inference.weights must have exactly one of oci, image, persistentVolumeClaim and hostPath",
		},
		{
			reason: "weights come from one place",
			body:   "inference: {preset: {name: m}, weights: {oci: {reference: a}, persistentVolumeClaim: {claimName: c}}}",
			want:   "inference.weights: Invalid value: inference.weights must have exactly one of oci, image, persistentVolumeClaim and hostPath",
		},
		{
			reason: "a path stays within the source",
			body:   "inference: {preset: {name: m}, weights: {persistentVolumeClaim: {claimName: c}, path: a/../b}}",
			want:   `inference.weights.path: Invalid value: "a/../b": inference.weights.path must be a relative path of letters, digits, dots, dashes and underscores, such as models/phi-4`,
		},
		{
			reason: "a claim has a name",
			body:   "inference: {preset: {name: m}, weights: {persistentVolumeClaim: {claimName: team/models}}}",
			want:   `inference.weights.persistentVolumeClaim.claimName: Invalid value: "team/models": inference.weights.persistentVolumeClaim.claimName must be the name of a PersistentVolumeClaim in the Workspace's namespace`,
		},
		{
			reason: "a claim has a name",
			body:   "inference: {preset: {name: m}, weights: {persistentVolumeClaim: {}}}",
			want:   "[inference.weights.persistentVolumeClaim.claimName: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
		},
		{
			reason: "dots lead out of what the administrator allows",
			body:   "inference: {preset: {name: m}, weights: {hostPath: {path: /var/lib/models/../../etc}}}",
			want:   `inference.weights.hostPath.path: Invalid value: "/var/lib/models/../../etc": inference.weights.hostPath.path must be an absolute path of letters, digits, dots, dashes and underscores, such as /var/lib/models`,
		},
		{
			reason: "a directory of the node is absolute",
			body:   "inference: {preset: {name: m}, weights: {hostPath: {path: models}}}",
			want:   `inference.weights.hostPath.path: Invalid value: "models": inference.weights.hostPath.path must be an absolute path of letters, digits, dots, dashes and underscores, such as /var/lib/models`,
		},
		{
			reason: "an artifact is a reference, not a URL",
			body:   `inference: {preset: {name: m}, weights: {oci: {reference: "oci://registry.example/model:1"}}}`,
			want:   `inference.weights.oci.reference: Invalid value: "oci://registry.example/model:1": inference.weights.oci.reference must be an artifact's reference, such as registry.example/model:v1, without oci://`,
		},
		{
			reason: "a signature is somebody's",
			body:   `inference: {preset: {name: m}, weights: {oci: {reference: a, verify: {}}}}`,
			want:   "inference.weights.oci.verify: Invalid value: inference.weights.oci.verify must have exactly one of publicKey, publicKeyConfigMap and keyless",
		},
		{
			reason: "a public key is in one place",
			body:   `inference: {preset: {name: m}, weights: {oci: {reference: a, verify: {publicKey: a, publicKeyConfigMap: b}}}}`,
			want:   "inference.weights.oci.verify: Invalid value: inference.weights.oci.verify must have exactly one of publicKey, publicKeyConfigMap and keyless",
		},
		{
			reason: "a signature is a key's or an identity's",
			body:   `inference: {preset: {name: m}, weights: {oci: {reference: a, verify: {publicKey: a, keyless: {issuer: i, subject: s}}}}}`,
			want:   "inference.weights.oci.verify: Invalid value: inference.weights.oci.verify must have exactly one of publicKey, publicKeyConfigMap and keyless",
		},
		{
			reason: "an identity has one subject",
			body:   `inference: {preset: {name: m}, weights: {oci: {reference: a, verify: {keyless: {issuer: i}}}}}`,
			want:   "inference.weights.oci.verify.keyless: Invalid value: inference.weights.oci.verify.keyless must have exactly one of subject and subjectRegExp",
		},
		{
			reason: "a repository of images is lower-case",
			body:   "inference: {preset: {name: m}, weights: {image: {reference: registry.example/Team/model}}}",
			want:   `inference.weights.image.reference: Invalid value: "registry.example/Team/model": inference.weights.image.reference must be an image reference, such as registry.example/model:v1`,
		},
		{
			reason: "an unknown policy",
			body:   "inference: {preset: {name: m}, weights: {image: {reference: a, pullPolicy: Sometimes}}}",
			want:   `[inference.weights.image.pullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			reason: "a model has a name",
			body:   "inference: {preset: {}}",
			want:   "[inference.preset.name: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
		},
		{
			reason: "a model has a name",
			body:   `inference: {preset: {name: ""}}`,
			want:   `inference.preset.name: Invalid value: "": inference.preset.name in body should be at least 1 chars long`,
		},
		{
			reason: "an unknown access mode",
			body:   "inference: {preset: {name: m, accessMode: secret}}",
			want:   `[inference.preset.accessMode: Unsupported value: "secret": supported values: "public", "private", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			reason: "requests ask for an adapter by name",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a, image: b}}, {source: {name: a, image: c}}]}",
			want:   "inference.adapters: Invalid value: inference.adapters must have different source.name values: requests select an adapter by its name",
		},
		{
			reason: "eleven adapters",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a0, image: b}}, {source: {name: a1, image: b}}, {source: {name: a2, image: b}}, {source: {name: a3, image: b}}, {source: {name: a4, image: b}}, {source: {name: a5, image: b}}, {source: {name: a6, image: b}}, {source: {name: a7, image: b}}, {source: {name: a8, image: b}}, {source: {name: a9, image: b}}, {source: {name: a10, image: b}}]}",
			want:   "[inference.adapters: Too many: 11: must have at most 10 items, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
		},
		{
			reason: "an adapter comes from somewhere",
			body:   `inference: {preset: {name: m}, adapters: [{strength: "1"}]}`,
			want:   "inference.adapters[0].source: Invalid value: inference.adapters[].source must be set: a name, and an image, a volumeSource or a repository",
		},
		{
			reason: "an adapter's name is part of a path",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: My_Adapter, image: b}}]}",
			want:   "inference.adapters[0].source.name: Invalid value: inference.adapters[].source.name must be set to lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit",
		},
		{
			reason: "an adapter has a name",
			body:   "inference: {preset: {name: m}, adapters: [{source: {image: b}}]}",
			want:   "inference.adapters[0].source.name: Invalid value: inference.adapters[].source.name must be set to lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit",
		},
		{
			reason: "KAITO downloads no adapters",
			body:   `inference: {preset: {name: m}, adapters: [{source: {name: a, urls: ["https://host.example/a"]}}]}`,
			want:   "inference.adapters[0].source.urls: Invalid value: inference.adapters[].source.urls is not supported: use image, volumeSource or repository",
		},
		{
			reason: "an adapter has one source",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a, image: b, volumeSource: {emptyDir: {}}}}]}",
			want:   "inference.adapters[0].source: Invalid value: inference.adapters[].source must have exactly one of image, volumeSource and repository",
		},
		{
			reason: "a mistake in KAITO's documentation: volume for volumeSource",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a, volume: {emptyDir: {}}}}]}",
			want:   "inference.adapters[0].source: Invalid value: inference.adapters[].source must have exactly one of image, volumeSource and repository",
		},
		{
			reason: "an adapter has one source",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a, image: b, repository: org/a}}]}",
			want:   "inference.adapters[0].source: Invalid value: inference.adapters[].source must have exactly one of image, volumeSource and repository",
		},
		{
			reason: "a repository is no URL",
			body:   `inference: {preset: {name: m}, adapters: [{source: {name: a, repository: "https://huggingface.co/org/a"}}]}`,
			want:   `inference.adapters[0].source.repository: Invalid value: "https://huggingface.co/org/a": inference.adapters[].source.repository must be a repository of the hub, such as org/adapter or org/adapter@revision`,
		},
		{
			reason: "a path stays within the source",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a, image: b}, path: ../a.gguf}]}",
			want:   `inference.adapters[0].path: Invalid value: "../a.gguf": inference.adapters[].path must be a relative path of letters, digits, dots, dashes and underscores, such as adapter.gguf`,
		},
		{
			reason: "a strength is a number",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a, image: b}, strength: strong}]}",
			want:   `inference.adapters[0].strength: Invalid value: "strong": inference.adapters[].strength must be a decimal number from 0 to 1, such as "1.0"`,
		},
		{
			reason: "a strength is at most 1",
			body:   `inference: {preset: {name: m}, adapters: [{source: {name: a, image: b}, strength: "1.5"}]}`,
			want:   `inference.adapters[0].strength: Invalid value: "1.5": inference.adapters[].strength must be a decimal number from 0 to 1, such as "1.0"`,
		},
		{
			reason: "a strength is at least 0",
			body:   `inference: {preset: {name: m}, adapters: [{source: {name: a, image: b}, strength: "-0.1"}]}`,
			want:   `inference.adapters[0].strength: Invalid value: "-0.1": inference.adapters[].strength must be a decimal number from 0 to 1, such as "1.0"`,
		},
		{
			reason: "a strength is a number",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a, image: b}, strength: NaN}]}",
			want:   `inference.adapters[0].strength: Invalid value: "NaN": inference.adapters[].strength must be a decimal number from 0 to 1, such as "1.0"`,
		},
		{
			reason: "a strength is there or not",
			body:   `inference: {preset: {name: m}, adapters: [{source: {name: a, image: b}, strength: ""}]}`,
			want:   `inference.adapters[0].strength: Invalid value: "": inference.adapters[].strength must be a decimal number from 0 to 1, such as "1.0"`,
		},
		{
			reason: "a repository is lower-case",
			body:   "inference: {preset: {name: m}, adapters: [{source: {name: a, image: registry.example/Team/adapter}}]}",
			want:   `inference.adapters[0].source.image: Invalid value: "registry.example/Team/adapter": inference.adapters[].source.image must be an image reference, such as registry.example/adapter:v1`,
		},
		{
			reason: "an image is a reference, not a URL",
			body:   `inference: {preset: {name: m}, engine: {image: "https://registry.example/engine"}}`,
			want:   `inference.engine.image: Invalid value: "https://registry.example/engine": inference.engine.image must be an image reference, such as registry.example/engine:v1`,
		},
		{
			reason: "flags are written without dashes",
			body:   `inference: {preset: {name: m}, engine: {args: {--max-num-seqs: "1"}}}`,
			want:   "inference.engine.args: Invalid value: inference.engine.args must name flags without their leading dashes, such as max-num-seqs",
		},
		{
			reason: "a flag has a name",
			body:   `inference: {preset: {name: m}, engine: {args: {"": "1"}}}`,
			want:   "inference.engine.args: Invalid value: inference.engine.args must name flags without their leading dashes, such as max-num-seqs",
		},
		{
			reason: "an equals sign ends a variable's name",
			body:   "inference: {preset: {name: m}, engine: {env: [{name: a=b}]}}",
			want:   `inference.engine.env[0].name: Invalid value: "a=b": inference.engine.env[].name must consist of printable ASCII characters other than '='`,
		},
		{
			reason: "two values for one variable",
			body:   "inference: {preset: {name: m}, engine: {env: [{name: a}, {name: a}]}}",
			want:   "inference.engine.env: Invalid value: inference.engine.env sets a variable twice: remove one",
		},
		{
			reason: "65 flags",
			body:   `inference: {preset: {name: m}, engine: {args: {a0: "", a1: "", a2: "", a3: "", a4: "", a5: "", a6: "", a7: "", a8: "", a9: "", a10: "", a11: "", a12: "", a13: "", a14: "", a15: "", a16: "", a17: "", a18: "", a19: "", a20: "", a21: "", a22: "", a23: "", a24: "", a25: "", a26: "", a27: "", a28: "", a29: "", a30: "", a31: "", a32: "", a33: "", a34: "", a35: "", a36: "", a37: "", a38: "", a39: "", a40: "", a41: "", a42: "", a43: "", a44: "", a45: "", a46: "", a47: "", a48: "", a49: "", a50: "", a51: "", a52: "", a53: "", a54: "", a55: "", a56: "", a57: "", a58: "", a59: "", a60: "", a61: "", a62: "", a63: "", a64: ""}}}`,
			want:   "[inference.engine.args: Too many: 65: must have at most 64 items, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
		},
		{
			reason: "consent to nothing in particular",
			body:   `inference: {preset: {name: m}, engine: {allowedQuantizations: [""]}}`,
			want:   `inference.engine.allowedQuantizations[0]: Invalid value: "": inference.engine.allowedQuantizations[0] in body should be at least 1 chars long`,
		},
		{
			reason: "a quantization named twice",
			body:   `inference: {preset: {name: m}, engine: {allowedQuantizations: [fp8, fp8]}}`,
			want:   "inference.engine.allowedQuantizations: Invalid value: inference.engine.allowedQuantizations names a quantization twice: remove one",
		},
		{
			reason: "a type of cache named twice",
			body:   `inference: {preset: {name: m}, engine: {allowedKVCacheTypes: [fp8, fp8]}}`,
			want:   "inference.engine.allowedKVCacheTypes: Invalid value: inference.engine.allowedKVCacheTypes names a type twice: remove one",
		},
		{
			reason: "days are no unit of Go's durations, and no client could read them",
			body:   "inference: {preset: {name: m}, objectives: {timeToFirstToken: 5d}}",
			want:   `inference.objectives.timeToFirstToken: Invalid value: "5d": inference.objectives.timeToFirstToken must be a duration above zero in h, m, s or ms, such as 5s or 1m30s`,
		},
		{
			reason: "no requests",
			body:   `inference: {preset: {name: m}, objectives: {requestsPerSecond: "0.0"}}`,
			want:   `inference.objectives.requestsPerSecond: Invalid value: "0.0": inference.objectives.requestsPerSecond must be a decimal number above zero, such as "2.5"`,
		},
		{
			reason: "requests that are not counted",
			body:   `inference: {preset: {name: m}, objectives: {requestsPerSecond: NaN}}`,
			want:   `inference.objectives.requestsPerSecond: Invalid value: "NaN": inference.objectives.requestsPerSecond must be a decimal number above zero, such as "2.5"`,
		},
		{
			reason: "a duration has a unit",
			body:   `inference: {preset: {name: m}, objectives: {timePerOutputToken: "100"}}`,
			want:   `inference.objectives.timePerOutputToken: Invalid value: "100": inference.objectives.timePerOutputToken must be a duration above zero in h, m, s or ms, such as 100ms`,
		},
		{
			reason: "nothing takes no time",
			body:   "inference: {preset: {name: m}, objectives: {timeToFirstToken: 0s}}",
			want:   `inference.objectives.timeToFirstToken: Invalid value: "0s": inference.objectives.timeToFirstToken must be a duration above zero in h, m, s or ms, such as 5s or 1m30s`,
		},
		{
			reason: "a duration that no client can hold",
			body:   "inference: {preset: {name: m}, objectives: {timePerOutputToken: 9999999999999h}}",
			want:   `inference.objectives.timePerOutputToken: Invalid value: "9999999999999h": inference.objectives.timePerOutputToken must be a duration above zero in h, m, s or ms, such as 100ms`,
		},
		{
			reason: "a context that no client can hold",
			body:   "inference: {preset: {name: m}, objectives: {maxModelLen: 3000000000}}",
			want:   "inference.objectives.maxModelLen: Invalid value: 3000000000: inference.objectives.maxModelLen in body should be less than or equal to 100000000",
		},
		{
			reason: "no context",
			body:   "inference: {preset: {name: m}, objectives: {maxModelLen: 0}}",
			want:   "inference.objectives.maxModelLen: Invalid value: 0: inference.objectives.maxModelLen in body should be greater than or equal to 1",
		},
		{
			reason: "an unknown objective",
			body:   "inference: {preset: {name: m}, objectives: {optimizeFor: Beauty}}",
			want:   `[inference.objectives.optimizeFor: Unsupported value: "Beauty": supported values: "Balanced", "Cost", "Latency", "Throughput", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			reason: "a quantity that no client can read",
			body:   "inference: {preset: {name: m}, pod: {cpu: 1e1.5}}",
			want:   `inference.pod.cpu: Invalid value: "1e1.5": inference.pod.cpu must be a quantity above zero, such as 4 or 500m`,
		},
		{
			reason: "a quantity",
			body:   "inference: {preset: {name: m}, pod: {cpu: many}}",
			want:   `[inference.pod.cpu: Invalid value: "many": inference.pod.cpu in body should match '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$', inference.pod.cpu: Invalid value: "many": inference.pod.cpu must be a quantity above zero, such as 4 or 500m]`,
		},
		{
			reason: "a quantity whose comparison would take the API server a minute",
			body:   "inference: {preset: {name: m}, pod: {memory: 1e99999999}}",
			want:   `inference.pod.memory: Invalid value: "1e99999999": inference.pod.memory must be a quantity above zero, such as 16Gi`,
		},
		{
			reason: "no CPU at all",
			body:   "inference: {preset: {name: m}, pod: {cpu: 0}}",
			want:   "inference.pod.cpu: Invalid value: 0: inference.pod.cpu must be a quantity above zero, such as 4 or 500m",
		},
		{
			reason: "less than no memory",
			body:   "inference: {preset: {name: m}, pod: {memory: -1Gi}}",
			want:   `inference.pod.memory: Invalid value: "-1Gi": inference.pod.memory must be a quantity above zero, such as 16Gi`,
		},
		{
			reason: "a grace period lies ahead",
			body:   "inference: {preset: {name: m}, pod: {terminationGracePeriodSeconds: -1}}",
			want:   "inference.pod.terminationGracePeriodSeconds: Invalid value: -1: inference.pod.terminationGracePeriodSeconds in body should be greater than or equal to 0",
		},
		{
			reason: "a skew that no client can hold",
			body:   "inference: {preset: {name: m}, pod: {topologySpreadConstraints: [{topologyKey: a, whenUnsatisfiable: DoNotSchedule, maxSkew: 3000000000}]}}",
			want:   "inference.pod.topologySpreadConstraints[0].maxSkew: Invalid value: 3000000000: inference.pod.topologySpreadConstraints[0].maxSkew in body should be less than or equal to 2147483647",
		},
		{
			reason: "what to tune",
			body:   "tuning: {method: lora, input: {image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.preset: Invalid value: tuning.preset must be set: it names the model to tune",
		},
		{
			reason: "how to tune",
			body:   "tuning: {preset: {name: m}, input: {image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.method: Invalid value: tuning.method must be set: lora or qlora",
		},
		{
			reason: "how to tune",
			body:   "tuning: {preset: {name: m}, method: full, input: {image: registry.example/data:1}, output: {volumeSource: {emptyDir: {}}}}",
			want:   `tuning.method: Invalid value: "full": tuning.method must be lora or qlora`,
		},
		{
			reason: "what to tune with",
			body:   "tuning: {preset: {name: m}, method: lora, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.input: Invalid value: tuning.input must be set: one of urls, image and volumeSource",
		},
		{
			reason: "where to put it",
			body:   "tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1}}",
			want:   "tuning.output: Invalid value: tuning.output must be set: one of image and volumeSource",
		},
		{
			reason: "data has one source",
			body:   "tuning: {preset: {name: m}, method: lora, input: {name: a}, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.input: Invalid value: tuning.input must have exactly one of urls, image and volumeSource",
		},
		{
			reason: "data has one source",
			body:   "tuning: {preset: {name: m}, method: lora, input: {image: registry.example/a, volumeSource: {emptyDir: {}}}, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.input: Invalid value: tuning.input must have exactly one of urls, image and volumeSource",
		},
		{
			reason: "no other protocol",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["ftp://host.example/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must be http or https URLs, such as https://host.example/data.parquet",
		},
		{
			reason: "a file of whose",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["file:///etc/passwd"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must be http or https URLs, such as https://host.example/data.parquet",
		},
		{
			reason: "no URL",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["data"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must be http or https URLs, such as https://host.example/data.parquet",
		},
		{
			reason: "no host",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http:///a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must be http or https URLs, such as https://host.example/data.parquet",
		},
		{
			reason: "this machine",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://localhost:8080/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "this machine by another name",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://foo.localhost./a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "this machine by address",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://127.0.0.1/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "this machine by IPv6 address",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://[::1]/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form",
		},
		{
			reason: "this machine by an address in short",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://127.1/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "[tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form, tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster]",
		},
		{
			reason: "this machine by an address in hexadecimal",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://0x7f000001/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form",
		},
		{
			reason: "this machine by an address in octal",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://0177.0.0.1/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form",
		},
		{
			reason: "this machine by an address in one number",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://2130706433/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form",
		},
		{
			reason: "this machine by an address of the other family",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://[::ffff:127.0.0.1]/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form",
		},
		{
			reason: "any address",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://0.0.0.0/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "the cloud's metadata",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://169.254.169.254/latest/meta-data"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "the cloud's metadata, with a user in front",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://host.example@169.254.169.254/"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "the cloud's metadata by name",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://METADATA.google.internal/"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "Azure's host agent",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://168.63.129.16/"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "a private network",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["https://10.1.2.3/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "a private network",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["https://172.16.0.1/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "a private network",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["https://192.168.1.1/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "a provider's private network",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["https://100.100.100.200/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must not point to a loopback, private, link-local or metadata address: use volumeSource or image for data inside the cluster",
		},
		{
			reason: "a private network",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://[fd00::1]/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form",
		},
		{
			reason: "a link's own address",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://[fe80::1]/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form",
		},
		{
			reason: "a name in disguise",
			body:   `tuning: {preset: {name: m}, method: lora, input: {urls: ["http://ⓛocalhost/a"]}, output: {volumeSource: {emptyDir: {}}}}`,
			want:   "tuning.input.urls: Invalid value: tuning.input.urls must have a host that is a name in ASCII or a public IP address in its usual form",
		},
		{
			reason: "an image is a reference",
			body:   "tuning: {preset: {name: m}, method: lora, input: {image: Data}, output: {volumeSource: {emptyDir: {}}}}",
			want:   `tuning.input.image: Invalid value: "Data": tuning.input.image must be an image reference, such as registry.example/data:v1`,
		},
		{
			reason: "data for tuning is no repository",
			body:   "tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1, repository: org/data}, output: {volumeSource: {emptyDir: {}}}}",
			want:   "tuning.input.repository: Invalid value: tuning.input.repository is not supported: use urls, image or volumeSource",
		},
		{
			reason: "a result has one place",
			body:   "tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1}, output: {}}",
			want:   "tuning.output: Invalid value: tuning.output must have exactly one of image and volumeSource",
		},
		{
			reason: "a result has one place",
			body:   "tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1}, output: {image: registry.example/a, imagePushSecret: b, volumeSource: {emptyDir: {}}}}",
			want:   "tuning.output: Invalid value: tuning.output must have exactly one of image and volumeSource",
		},
		{
			reason: "nobody may push without a Secret",
			body:   "tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1}, output: {image: registry.example/a}}",
			want:   "tuning.output.imagePushSecret: Invalid value: tuning.output.imagePushSecret must be set with tuning.output.image: the name of a Secret that may push there",
		},
		{
			reason: "an image is a reference",
			body:   `tuning: {preset: {name: m}, method: lora, input: {image: registry.example/data:1}, output: {image: "registry.example/a b", imagePushSecret: c}}`,
			want:   `tuning.output.image: Invalid value: "registry.example/a b": tuning.output.image must be an image reference, such as registry.example/adapter:v1`,
		},
		{
			reason:      "a template is an object",
			body:        "inference: {template: 5}",
			everRefused: true,
			want:        `[inference.template: Invalid value: "integer": inference.template in body must be of type object: "integer", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			reason:   "a Service's name begins with a letter",
			metadata: "{name: 1st-model}",
			body:     "inference: {preset: {name: m}}",
			want:     `ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: metadata.name "1st-model" cannot be the name of a Service: use lower-case letters, digits and dashes, beginning with a letter and ending with a letter or digit`,
		},
		{
			reason:   "a Service's name has no dots",
			metadata: "{name: phi-3.5}",
			body:     "inference: {preset: {name: m}}",
			want:     `ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: metadata.name "phi-3.5" cannot be the name of a Service: use lower-case letters, digits and dashes, beginning with a letter and ending with a letter or digit`,
		},
		{
			reason:   "53 characters",
			metadata: "{name: a23456789-123456789-123456789-123456789-123456789-123}",
			body:     "inference: {preset: {name: m}}",
			want:     `ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: metadata.name "a23456789-123456789-123456789-123456789-123456789-123" has 53 characters, but at most 52 are allowed, because a label of its pods contains the name and a hash: choose a shorter name`,
		},
		{
			reason:   "an unknown image family",
			metadata: "{annotations: {kaito.sh/node-image-family: windows}}",
			body:     "inference: {preset: {name: m}}",
			want:     `ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: annotation kaito.sh/node-image-family is "windows": use ubuntu or azurelinux, or remove it`,
		},
		{
			reason:   "an unknown mode",
			metadata: "{annotations: {kaito.sh/performance-mode: Balanced}}",
			body:     "inference: {preset: {name: m}}",
			want:     `ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: annotation kaito.sh/performance-mode is "Balanced": use balanced, interactivity or throughput, or remove it`,
		},
		{
			reason:   "true and false have one spelling",
			metadata: `{annotations: {kaito.sh/use-local-weights: "True"}}`,
			body:     "inference: {preset: {name: m}}",
			want:     `ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: annotation kaito.sh/use-local-weights is "True": use "true" or "false", or remove it`,
		},
		{
			reason: "a pod has containers",
			body:   "inference: {template: {}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.template.spec.containers must list at least one container: add the one that serves the model",
		},
		{
			reason: "a pod has containers",
			body:   "inference: {template: {spec: {containers: []}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.template.spec.containers must list at least one container: add the one that serves the model",
		},
		{
			reason: "a pod has a list of containers",
			body:   "inference: {template: {spec: {containers: 5}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.template.spec.containers must list at least one container: add the one that serves the model",
		},
		{
			reason: "a container has a name",
			body:   "inference: {template: {spec: {containers: [{image: a}]}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.template.spec has a container without a name, or with an invalid name: name every container, with at most 63 lower-case letters, digits and dashes",
		},
		{
			reason: "a container's name is a label",
			body:   "inference: {template: {spec: {containers: [{name: My_Server, image: a}]}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.template.spec has a container without a name, or with an invalid name: name every container, with at most 63 lower-case letters, digits and dashes",
		},
		{
			reason: "a container is an object",
			body:   "inference: {template: {spec: {containers: [5]}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.template.spec has a container without a name, or with an invalid name: name every container, with at most 63 lower-case letters, digits and dashes",
		},
		{
			reason: "containers differ in name, init containers too",
			body:   "inference: {template: {spec: {containers: [{name: a, image: a}], initContainers: [{name: a, image: a}]}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.template.spec has two containers with the same name: give each container a name of its own",
		},
		{
			reason: "a container has an image",
			body:   "inference: {template: {spec: {containers: [{name: a, image: a}, {name: b}]}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.template.spec has a container without an image: set image for every container",
		},
		{
			reason: "a key that no node can carry",
			body: `resource: {labelSelector: {matchLabels: {a b: c}}}
inference: {preset: {name: m}}`,
			want: "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: resource.labelSelector has a key or a value that no label can have: a node's labels have at most 63 letters, digits, dashes, dots and underscores",
		},
		{
			reason: "a value that no node can carry",
			body: `resource: {labelSelector: {matchExpressions: [{key: a, operator: In, values: [b c]}]}}
inference: {preset: {name: m}}`,
			want: "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: resource.labelSelector has a key or a value that no label can have: a node's labels have at most 63 letters, digits, dashes, dots and underscores",
		},
		{
			reason: "a label that no pod can carry",
			body:   "inference: {preset: {name: m}, pod: {labels: {a: b c}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.pod.labels has a key or a value that no label can have: use at most 63 letters, digits, dashes, dots and underscores",
		},
		{
			reason: "an annotation that no pod can carry",
			body:   "inference: {preset: {name: m}, pod: {annotations: {a b: c}}}",
			want:   "ValidatingAdmissionPolicy 'modelberth-workspaces' with binding 'modelberth-workspaces' denied request: inference.pod.annotations has a key that no annotation can have: use at most 63 letters, digits, dashes, dots and underscores",
		},
	}
}
