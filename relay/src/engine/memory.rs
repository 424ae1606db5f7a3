//! The engine's policy for a full memory.

use redis::Value;

/// The policy by which a server of this reply to `INFO memory` may evict leases; `None` if none may. A cluster
/// has a reply of each node.
pub(super) fn evicts_by(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => policy(&String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => policy(text),
        Value::Array(nodes) => nodes.iter().find_map(evicts_by),
        Value::Map(nodes) => nodes.iter().find_map(|(_, node)| evicts_by(node)),
        _ => None,
    }
}

/// Every lease has an end, so each policy but `noeviction` may evict some.
fn policy(info: &str) -> Option<String> {
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let is_bounded = field("maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = field("maxmemory_policy").filter(|policy| *policy != "noeviction");
    policy.filter(|_| is_bounded).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(bytes: u64, policy: &str) -> Value {
        let text = format!(
            "# Memory\r\nused_memory:1\r\nmaxmemory:{bytes}\r\nmaxmemory_human:1G\r\n\
             maxmemory_policy:{policy}\r\n"
        );
        Value::BulkString(text.into_bytes())
    }

    #[test]
    fn a_bound_and_a_policy_are_needed() {
        assert_eq!(evicts_by(&node(0, "allkeys-lru")), None);
        assert_eq!(evicts_by(&node(9, "noeviction")), None);
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert_eq!(evicts_by(&node(9, policy)).as_deref(), Some(policy));
        }
        assert_eq!(evicts_by(&Value::BulkString(Vec::new())), None);
    }

    #[test]
    fn one_node_is_enough() {
        let name = |text: &str| Value::BulkString(text.into());
        let nodes = Value::Map(vec![
            (name("a:1"), node(9, "noeviction")),
            (name("b:1"), node(9, "allkeys-random")),
        ]);
        assert_eq!(evicts_by(&nodes).as_deref(), Some("allkeys-random"));
    }
}
