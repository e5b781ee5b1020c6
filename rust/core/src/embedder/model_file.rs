//! The constants of an ONNX file, by name.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;

use crate::error::{ModelProblem, Result};

/// Values of `TensorProto.DataType`.
pub(super) const FLOAT: i32 = 1;
pub(super) const INT8: i32 = 3;

/// The fields of onnx.proto that are needed; others are skipped.
#[derive(Message)]
struct ModelProto {
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
}

#[derive(Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
}

#[derive(Message)]
struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "bytes", tag = "9")]
    raw_data: Bytes,
}

/// The constants of a graph. Their bytes are shared with the file.
pub(super) struct Constants(HashMap<String, TensorProto>);

impl Constants {
    /// Reads an ONNX file.
    ///
    /// Fails with `model_unsupported` if it is another kind of file.
    pub(super) fn read(file: Bytes) -> Result<Self> {
        let model =
            ModelProto::decode(file).map_err(|error| ModelProblem::NotOnnx(error.to_string()))?;
        let constants = model.graph.unwrap_or_default().initializer.into_iter();
        Ok(Self(constants.map(|constant| (constant.name.clone(), constant)).collect()))
    }

    /// Length of an axis of a constant; 0 if there is no such axis or constant.
    pub(super) fn length(&self, name: &str, axis: usize) -> usize {
        let length = self.0.get(name).and_then(|constant| constant.dims.get(axis));
        length.and_then(|length| usize::try_from(*length).ok()).unwrap_or_default()
    }

    /// The bytes of a constant with a type and a number of values.
    ///
    /// Fails with `model_unsupported` if there is no such constant.
    pub(super) fn bytes(&self, name: &str, data_type: i32, count: usize) -> Result<Bytes> {
        let size = if data_type == FLOAT { 4 } else { 1 };
        match self.0.get(name) {
            Some(TensorProto { data_type: found, raw_data, .. })
                if *found == data_type && raw_data.len() == count.saturating_mul(size) =>
            {
                Ok(raw_data.clone())
            }
            _ => {
                let name = name.to_owned();
                Err(ModelProblem::MissingConstant { name, count, data_type }.into())
            }
        }
    }

    /// The values of a constant of floats.
    pub(super) fn floats(&self, name: &str, count: usize) -> Result<Vec<f32>> {
        let bytes = self.bytes(name, FLOAT, count)?;
        Ok(bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect())
    }
}

/// An ONNX file of constants with names, shapes and types. `value` returns the bytes of a number.
#[cfg(test)]
pub(super) fn written(
    constants: &[(String, Vec<usize>, i32)],
    value: impl Fn(i32, usize) -> Vec<u8>,
) -> Vec<u8> {
    let tensor = |(name, dims, kind): &(String, Vec<usize>, i32)| TensorProto {
        dims: dims.iter().map(|length| i64::try_from(*length).unwrap()).collect(),
        data_type: *kind,
        name: name.clone(),
        raw_data: (0..dims.iter().product()).flat_map(|place| value(*kind, place)).collect(),
    };
    let initializer = constants.iter().map(tensor).collect();
    ModelProto { graph: Some(GraphProto { initializer }) }.encode_to_vec()
}
